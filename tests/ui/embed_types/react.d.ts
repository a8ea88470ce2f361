// The part of React's types that a component with a custom element needs.

declare module 'react' {
  export namespace JSX {
    interface Element {}
    interface IntrinsicElements {}
  }
}

declare module 'react/jsx-runtime' {
  export { JSX } from 'react';
  export function jsx(type: string, props: object): import('react').JSX.Element;
}
